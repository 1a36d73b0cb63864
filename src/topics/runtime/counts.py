"""Counts: what this process has done since it started, for the metrics. What is live is counted by the engine."""


class Counts:
    """Only ever grows. Each is added to where the thing happens, once a request or less."""

    __slots__ = ("appends", "no_room", "reads", "records_read", "tombstones")

    def __init__(self) -> None:
        self.appends = 0
        """Writes acknowledged, not counting those recognised as repeats."""
        self.no_room = 0
        """Times a write found memory full of records that are being sealed; it waited or was refused."""
        self.reads = 0
        """Answers with records or without: pages, consumes and claims answered, frames sent to live readers."""
        self.records_read = 0
        """Records in them, counted again for each reader that gets them."""
        self.tombstones = 0
        """Tombstones in them."""

    def count_read(self, records: int, lost: bool) -> None:
        """Count one answer to a reader; `lost` when it reports a range of lost records."""
        self.reads += 1
        self.records_read += records
        if lost:
            self.tombstones += 1
