"""Requests without redirects, which would carry credentials elsewhere."""

from __future__ import annotations

import urllib.request
from typing import Any


class _Refuse(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


NO_REDIRECTS = urllib.request.build_opener(_Refuse)
