"""Routers: which records are forwarded, their copies, and the copies that recovery makes again."""
