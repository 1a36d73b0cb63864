"""HTTP handlers of topics, records, stages and routers."""
