"""Width: how many different things a problem's rollouts are. One measure a file; `registry` lists them."""
