"""What should happen: pure decisions over topics, their records and their readers.

Nothing here waits, opens, sends, or asks for the time: numbers come in as arguments and facts come out.
"""
