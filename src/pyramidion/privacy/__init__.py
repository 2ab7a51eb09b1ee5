"""Differential privacy: noise, budgets, the ledger, and what spends from it."""
