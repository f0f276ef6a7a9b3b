"""The pages of runs, live: the server, over HTTP as a browser sees it."""
