"""The script of AppTest: the app's sidebar and the page that the URL names. Navigation between pages needs a browser."""

import streamlit as st

from dashboards.app import PAGES, choose_run

name = st.query_params.get("page") or "overview"
choose_run()
PAGES[name][1]()
