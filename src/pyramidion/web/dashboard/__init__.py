"""The dashboard: pages for people, behind the service's own tokens.

sessions     who is logged in: a token, proven once, and a cookie instead of it
origins      what came from a page of this service, and what another site had a browser send
pages        routes of pages, which say who may see them as the API's routes do
api          the API, asked from here as whoever is logged in: pages show what it answers
rendering    templates, in which everything is escaped that is not meant as markup
layout       what stands around every page: title, navigation, what is live
figures      plots, as values that the browser draws
entry, ...   one module for each view

A page keeps nothing: what it shows is asked for when it is shown, and no cache may keep it.
"""

from __future__ import annotations

from pyramidion.web.dashboard.app import routes_of

__all__ = ["routes_of"]
