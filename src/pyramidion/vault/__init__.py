"""Raw history that the machine which wrote it cannot read.

vault          START HERE: the vault of one store
writer         acknowledged batches into sealed files, in a thread of its own
files          sealed files: their names, and their rows in the catalogue
backlog        sealed files on their way to the place
places         where they are stored: a directory, or what fsspec reaches
coverage       which batches must be in them
verification   whether they are there, whole; files of another copy to adopt
keys           pairs of keys: the custodian's, a broker's, an engineer's
envelope       the header of a sealed file, and its key, sealed to the custodian
parquet        rows as an encrypted Parquet file, and back
documents      requests, grants and revocations: signed, carried between people
stream         granted rows on their way, sealed to the engineer
broker         the process that opens what was granted
broker_server  its address, and the broker of the store in a directory
reader         what an engineer does with a grant
erase_person   files rewritten without one person's rows, under a grant to erase
"""
