"""Rerankers: a costly model reads the few candidates that a cheap first stage puts first."""
