"""Questions of the query API over datasets: checked, grouped, measured, paged. `query` answers them."""
