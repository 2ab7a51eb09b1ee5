"""The audit: what a store really leaks, measured on stores made for it, against its ledger.

    canaries      rows with values of their own, the coins that let them in, their cells
    trial         a temporary store with a clock of its own, as an attacker reads it
    statistical   canaries guessed from released cells: a lower bound on the privacy loss
    witness       what was durable when: charge before noise, noise before acknowledgement
    life          every state of a window that ever lay on the disk
    sizes         how large its noise is, beside what the ledger says it cost
    structural    facts that hold on every run: one draw, before all rows, as large as paid for
    report        both together, for an officer and as JSON

The bounds themselves are in `pyramidion.privacy.audit`. An audit never touches anybody's
store: it needs rows that it may put in or leave out.
"""
