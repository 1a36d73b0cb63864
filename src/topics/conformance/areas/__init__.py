"""One module per area of the contract. Importing a module registers its checks."""
