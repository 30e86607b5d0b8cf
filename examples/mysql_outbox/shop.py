"""A shop that takes orders, and tells of each in the same transaction: python shop.py URL [COUNT].

The URL is that of the outbox, such as mysql://root@127.0.0.1:3306/shop/orders.
"""

from __future__ import annotations

import json
import random
import sys
from urllib.parse import urlsplit

import pymysql

import tidemill as tm

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40), cents BIGINT, placed DATETIME
)
"""


def take_orders(url: str, count: int, *, seed: int = 1) -> None:
    """Take so many orders, each in a transaction of its own; one in ten comes to nothing."""
    chance = random.Random(seed)
    outbox = tm.Outbox(url)
    outbox.create()
    with connected(url) as shop, shop.cursor() as cursor:
        cursor.execute(TABLE)
        for _ in range(count):
            order = {
                "customer": f"customer-{chance.randrange(100)}",
                "cents": chance.randrange(100, 100_000),
                "placed": f"2026-01-{chance.randrange(1, 4):02} 12:{chance.randrange(60):02}:00",
            }
            cursor.execute(
                "INSERT INTO orders (customer, cents, placed) VALUES (%s, %s, %s)",
                tuple(order.values()),
            )
            event = json.dumps({"id": cursor.lastrowid, **order}).encode()
            outbox.insert(cursor, [event])
            # The card is refused: then neither the order is there nor the event.
            if chance.randrange(10) == 0:
                shop.rollback()
            else:
                shop.commit()


def connected(url: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """A connection of the application's own to the database of the outbox."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.split("/")[1],
    )


if __name__ == "__main__":
    take_orders(
        sys.argv[1],
        int(sys.argv[2]) if len(sys.argv) > 2 else 1_000,
        seed=random.randrange(2**32),
    )
