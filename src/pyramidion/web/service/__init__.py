"""The service: streams of a data directory over HTTP.

app         the routes, put together
routes_*    routes of rows, models, the store, the vault, and administration
calls       what handlers get, and what several of them share
service     streams, tokens, the signing key: what one process serves
streams     one stream: its store, the queue before it, its timer
commits     observations of many senders in one durable commit; loop_wakeup tells them
tokens      tokens are made, removed and stored
row_bodies  rows as JSON, Arrow or CSV, by content type; csv_bodies
schema_files, workloads, grants   what requests say of schemas and models, and the log of grants
metrics     numbers for Prometheus
warming     loads kernels before the first request
server      the process: address, certificates, graceful stop

What an edge shares, such as routing, limits and errors, is in `pyramidion.web`.
"""
