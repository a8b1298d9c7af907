"""What Streamlit runs. Not beside `pages/`: a folder of that name next to the script would be taken for the pages
themselves, and a link to one of them would open blank on a fresh server."""

from dashboards.app import main

if __name__ == "__main__":
    main()
