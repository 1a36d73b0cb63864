"""Group consumers: the members of a group share the partitions of a topic; each group gets every message.

    topics serve
    python examples/groups.py http://127.0.0.1:4000

Orders of one customer have the same key, so they stay in order and go to one member at a time. A message is acknowledged
after it was handled: a member that dies leaves its messages to the others.
"""

import sys
import threading

from topics.client import Client, LostMessages, Message

TOPIC, ORDERS = "shop.orders", 40


def main() -> None:
    url = sys.argv[1]
    with Client(url) as client:
        client.create(TOPIC, partitions=4)
        orders = client.topic(TOPIC)
        for number in range(ORDERS):
            customer = f"customer-{number % 7}"
            orders.append({"order": number, "customer": customer}, partition_key=customer)
    for group, members in (("billing", 2), ("shipping", 1)):
        handled: dict[str, list[int]] = {f"{group}-{number}": [] for number in range(members)}
        threads = [threading.Thread(target=consume, args=(url, group, name, handled)) for name in handled]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = sum([len(each) for each in handled.values()])
        shares = ", ".join([f"{name} handled {len(each)}" for name, each in handled.items()])
        print(f"{group}: {total} of {ORDERS} orders; {shares}")


def consume(url: str, group: str, name: str, handled: dict[str, list[int]]) -> None:
    """Handle messages until the group has handled all orders."""
    with Client(url) as client, client.consumer(TOPIC, group=group, name=name, limit=5) as consumer:
        while sum([len(each) for each in handled.values()]) < ORDERS:
            messages: list[Message | LostMessages] = consumer.poll(wait_s=0.2)
            for message in messages:
                if isinstance(message, Message):
                    handled[name].append(message.data["order"])
            if messages:
                consumer.ack(*messages)


if __name__ == "__main__":
    main()
