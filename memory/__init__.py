"""Memory systems: a store, a retriever and a chat model behind one interface."""
