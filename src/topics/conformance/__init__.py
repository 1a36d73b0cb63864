"""The contract of the HTTP API as checks against any running server, seen only from outside."""
