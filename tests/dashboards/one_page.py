"""What AppTest runs: the app's sidebar and the one page that the address names (navigation needs a browser)."""

import streamlit as st

from dashboards.app import PAGES, choose_run

name = st.query_params.get("page") or "overview"
choose_run()
PAGES[name][1]()
