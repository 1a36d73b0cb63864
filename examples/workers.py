"""Job workers: jobs in a queue, workers that finish them, retries, and a topic for jobs that are given up.

    topics serve
    python examples/workers.py http://127.0.0.1:4000

Start it in several terminals: each job runs in one of them. Kill one with `kill -9`: its jobs run elsewhere when their
leases end. With --drain it ends when the queue is empty.
"""

import sys
import threading
import time

from topics.client import Client, Job

QUEUE = "pictures"


def main() -> None:
    with Client(sys.argv[1]) as client:
        client.create(QUEUE, type="queue", lease_ms=5000)
        client.append(QUEUE, [{"picture": f"{number}.png"} for number in range(10)] + [{"picture": "broken"}])
        worker = client.worker(QUEUE, concurrency=4, retries=2, first_delay_s=0.1, lease_s=5)

        @worker.handler
        def resize(job: Job) -> None:
            if job.data["picture"] == "broken":
                raise ValueError("this is not a picture")
            time.sleep(0.02)
            # One write for the whole line: handlers run in several threads.
            print(f"resized {job.data['picture']}, delivery {job.deliveries}\n", end="", flush=True)

        if "--drain" in sys.argv:
            threading.Thread(target=stop_when_empty, args=(client, worker.stop), daemon=True).start()
        worker.run()
        for letter in client.read(f"{QUEUE}.dead"):
            print(f"given up: {letter.data['picture']}")


def stop_when_empty(client: Client, stop) -> None:
    while client.info(QUEUE).count:
        time.sleep(0.05)
    stop()


if __name__ == "__main__":
    main()
