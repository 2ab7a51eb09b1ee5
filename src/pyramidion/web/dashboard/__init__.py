"""The dashboard: pages for people, behind the service's own tokens.

sessions      who is logged in: a token, proven once, and a cookie instead of it
csrf          what came from a page of this service, and what another site had a browser send
pages         routes of pages, which name roles as the API's routes do
api           the API, called from here as the person who is logged in: pages show its answers
rendering     templates, in which everything is escaped that is not meant as markup
layout        around every page: title, navigation, which parts are live
figures       drawings and plots
static_files  style and scripts
login         login, logout and the list of streams
stream_pages  the pages of a stream
first_stream, first_rows, curl_commands   the first steps, on a page and as commands

A page keeps nothing: what it shows is asked for when it is shown, and no cache may keep it.
"""

from __future__ import annotations

from pyramidion.web.dashboard.app import routes_of

__all__ = ["routes_of"]
