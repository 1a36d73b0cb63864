"""One module per area of the contract, in folders by noun. Importing a module registers its checks."""
