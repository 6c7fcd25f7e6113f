"""The document says what the routes do: the same paths, the same methods, types that exist."""

from __future__ import annotations

import json
import re

from sandcell.guest.app import ROUTES
from sandcell.guest.journal_socket import JournalSocket
from sandcell.guest.openapi import OPERATIONS, make_document

METHODS = ("get", "head", "post", "put", "patch", "delete")


def test_every_method_of_every_route_is_described_and_no_other() -> None:
    routed = {
        (method, re.sub(r"\(.*?\)", "{name}", re.sub(r"\(.*?\)", "{id}", path, count=1)))
        for path, handler in ROUTES
        if not issubclass(handler, JournalSocket)  # a WebSocket is no operation
        for method in METHODS
        if any(method in vars(kind) for kind in handler.__mro__ if kind.__module__.startswith("sandcell"))
    }
    assert routed == {(each.method, each.path) for each in OPERATIONS}


def test_every_reference_leads_somewhere() -> None:
    document = make_document()
    text = json.dumps(document)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in document["components"]["schemas"]


def test_each_operation_has_its_answer_and_its_errors() -> None:
    for methods in make_document()["paths"].values():
        for described in methods.values():
            assert described["summary"]
            assert "default" in described["responses"]
