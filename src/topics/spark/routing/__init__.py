"""Routing: changes of a table become records of the topics that its routes name."""
