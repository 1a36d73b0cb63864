"""Authentication, authorization, browser origins and the roots of archives."""
