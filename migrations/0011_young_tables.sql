-- The rest of the planner's first guess (0001). Of a key whose values it doesn't know it expects two hundred different ones, and so
-- thousands of rows for a set of ten: for a set as large as that it walked along the whole region (a confirm beside 50,000 leases
-- took 300 ms). The first analysis brings the real figures.
DO $$
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN RETURN; END IF;
	PERFORM pg_restore_attribute_stats('schemaname', 'public', 'relname', k.of, 'attname', k.key, 'inherited', false,
		'null_frac', 0::real, 'avg_width', 16, 'n_distinct', k.n_distinct::real)
	FROM (VALUES
		('rides', 'id', -1),
		('offers', 'id', -1),
		('offers', 'ride_id', -0.8),
		('assignments', 'offer_id', -1),
		('assignments', 'ride_id', -0.9),
		('ride_events', 'ride_id', -0.15),
		('driver_state', 'driver_id', -1),
		('driver_state', 'offer_id', -1),
		('driver_presence', 'driver_id', -1)) k(of, key, n_distinct)
	WHERE NOT EXISTS (SELECT FROM pg_stats s WHERE s.schemaname = 'public' AND s.tablename = k.of AND s.attname = k.key);
END $$;
