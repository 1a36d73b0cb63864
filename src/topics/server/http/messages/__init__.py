"""HTTP/1.1 messages: bytes to requests and responses to bytes. Nothing here sends or waits."""
