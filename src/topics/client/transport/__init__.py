"""Where the server is, how it is reached and when a request is sent again; without sockets, for both clients."""
