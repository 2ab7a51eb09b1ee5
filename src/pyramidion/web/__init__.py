"""HTTP: what the service, its dashboard and the edge share.

server            the process: a stop that finishes what was accepted
acceptor          accepts connections while there are slots for them
connection_slots  how many connections there may be, and which one is dropped for a new one
descriptors       file descriptors: how many the stores leave for connections
connections       timeouts for slow clients, and one reading of every request
middleware        around every app: limits on header fields, response headers, metrics, the log
routing           routes with roles, and the checks before each of them
tokens            who may call, and for what
limits            rates, sizes and numbers; beyond them requests are refused
bodies            bodies in and responses out, as JSON or Arrow by content type; arrow_bodies
schemas           bodies as structs, for decoding and for OpenAPI
openapi, page     the OpenAPI document, for programs and for people
errors            errors as responses
metrics, logs     numbers for Prometheus; JSON lines on stderr

service/, dashboard/, edge/ and client/ use them.
"""
