"""Operations on topics: create, append, read, delete, live feeds, retention and the throttle."""
