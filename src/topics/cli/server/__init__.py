"""Commands that run, measure, check and configure a server, or how this command line reaches one."""
