"""The service: streams of a data directory over HTTP.

service     streams, tokens, the signing key: what one process serves
streams     one stream: its store, the queue before it, its timer
connections connections that nobody can hold for ever
gate        what every request passes: bounds of its fields, headers, metrics, the log
limits      how much is taken; beyond that it is refused
access      tokens and roles; everything is denied unless a role says otherwise
commits     observations of many senders in one durable commit
routing     routes that cannot be added without saying who may call them
bodies      rows in and answers out, as JSON or Arrow by content type
arrow_bodies  Arrow from strangers: refused before it costs more than its bytes
refusals    the one shape of errors
shapes      what bodies and answers look like; openapi, page: the document of them
metrics     numbers for Prometheus; logs: JSON lines on stderr
app         the routes, put together
server      the process: address, certificates, graceful stop
"""
