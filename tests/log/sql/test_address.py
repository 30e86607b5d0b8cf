"""URLs of logs on a server: what is wrong with one is said, its password never."""

from __future__ import annotations

import traceback

import pytest

import tidemill as tm
from tidemill.log.sql.address import Address

SECRET = "hush-hush"


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://app:[{SECRET}@host/shop/orders",
        f"mysql://app:{SECRET}\u2100@host/shop/orders",
        f"mysql://app:{SECRET}/1@host/shop/orders",
        f"mysql://app:{SECRET}#1@host/shop/orders",
        f"mysql://app:{SECRET}?1@host/shop/orders",
        f"mysql://app:{SECRET}@host:99999/shop/orders",
        f"mysql://app:{SECRET}@host:port/shop/orders",
        f"mysql://app:{SECRET}",
        f"mysql://app:{SECRET}@host/shop",
        f"mysql://app:{SECRET}@host/shop/orders?pass=1",
        f"mysql://app:{SECRET}@host/shop/orders?timeout_s=0",
        f"mysql://app:{SECRET}@host/shop/or%20ders",
        f"postgresql://app:{SECRET}@host/shop",
        f"mysql://app:{SECRET}@one..two/shop/orders",
        f"mysql://app:{SECRET}@.two/shop/orders",
        f"postgresql://app:{SECRET}@{'two' * 30}/shop/orders",
        f"postgresql://app:{SECRET}@bü..cher/shop/orders",
        f"postgresql://app:{SECRET}%00@host/shop/orders",
        f"postgresql://app:{SECRET}@host/shop%00/orders",
        f"mysql://app:{SECRET}@ho\x00st/shop/orders",
        f"mysql://app:{SECRET}\udcff@host/shop/orders",
        f"sqlserver://app:{SECRET}@host/shop/orders",
    ],
)
def test_what_is_wrong_with_a_url_is_told_without_its_password(url: str) -> None:
    with pytest.raises(tm.InvalidInput) as caught:
        tm.Log(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_address_is_shown_without_its_password() -> None:
    address = Address.parse(f"mysql://app:{SECRET}@host/shop/orders")
    assert (address.password, SECRET in repr(address)) == (SECRET, False)


def test_a_password_may_hold_anything_if_it_is_escaped() -> None:
    address = Address.parse("mysql://a%40b:%2F%23%3F%5B%25@[::1]:3307/shop/orders")
    assert (address.user, address.password) == ("a@b", "/#?[%")
    assert (address.host, address.port) == ("::1", 3307)


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_port_that_is_none_is_answered_for_the_server_that_is_meant(scheme: str) -> None:
    with pytest.raises(tm.InvalidInput, match=f"use {scheme}://"):
        Address.parse(f"{scheme}://app@host:port/shop/orders")


@pytest.mark.parametrize("name", ["mysql", "MySQL", "MARIADB", "PostgreSQL", "postgres"])
def test_the_name_of_a_scheme_has_no_case(name: str) -> None:
    assert Address.parse(f"{name}://app@host/shop/orders").host == "host"
    with pytest.raises(tm.InvalidInput, match="no URL of a log"):
        tm.Log(f"{name}://app:{SECRET}")


def test_a_queue_is_in_a_folder_only() -> None:
    with pytest.raises(tm.InvalidInput, match=r"tm\.Log") as caught:
        tm.PriorityQueue(f"mysql://app:{SECRET}@host/shop/orders")
    assert SECRET not in str(caught.value)


def test_certificates_that_cannot_be_read_are_told_of_at_once(tmp_path: object) -> None:
    for path in (f"{tmp_path}/none", __file__):
        with pytest.raises(tm.InvalidInput, match="ssl_ca names"):
            tm.Log(f"mysql://app@127.0.0.1:1/shop/orders?ssl_ca={path}")
