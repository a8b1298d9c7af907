"""`python -m varband`."""

from varband import main

if __name__ == "__main__":
    main()
