"""Operations on queues: claim, ack, nack, extend, push, and dead letters."""
