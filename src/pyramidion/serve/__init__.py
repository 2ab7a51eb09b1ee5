"""The service: streams of a data directory over HTTP.

service     streams, tokens, the signing key: what one process serves
streams     one stream: its store, the queue before it, its timer
access      tokens and roles; everything is denied unless a role says otherwise
routing     routes that cannot be added without saying who may call them
bodies      rows in and answers out, as JSON or Arrow by content type
refusals    the one shape of errors
app         the routes, put together
server      the process: address, certificates, graceful stop
"""
