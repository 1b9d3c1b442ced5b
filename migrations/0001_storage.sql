-- What drizzle-kit can't say: how the tables lie on disk.

-- Positions are lost in a crash and sent again within seconds; not logging them saves most of their cost.
ALTER TABLE "driver_presence" SET UNLOGGED;
--> statement-breakpoint
ALTER TABLE "presence_epochs" SET UNLOGGED;
--> statement-breakpoint
-- Room on the page for the next versions of a row keeps updates HOT: a driver's state changes about eight times in
-- a ride, a ride's about seven times in its life.
ALTER TABLE "driver_state" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
--> statement-breakpoint
ALTER TABLE "driver_presence" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
--> statement-breakpoint
ALTER TABLE "rides" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
--> statement-breakpoint
ALTER TABLE "offers" SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
--> statement-breakpoint
-- Where socket.io's PostgreSQL adapter puts notices that are too long for a NOTIFY.
CREATE TABLE "socket_io_attachments" ("id" bigserial UNIQUE, "created_at" timestamptz DEFAULT now(), "payload" bytea);
--> statement-breakpoint
-- The planner's first guess. A table that was never analysed is taken for a handful of rows, of which "in this region"
-- leaves one or two: every statement then walked the whole region instead of looking up its keys (a confirm of a few
-- offers took 300 ms until the first autovacuum). PostgreSQL 18 can be told what to expect; the real figures follow.
DO $$
DECLARE
	hot text;
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN RETURN; END IF;
	FOREACH hot IN ARRAY ARRAY['rides', 'offers', 'assignments', 'ride_events', 'driver_state', 'driver_presence', 'idempotency_keys'] LOOP
		PERFORM pg_restore_relation_stats('schemaname', 'public', 'relname', hot, 'relpages', 10000, 'reltuples', 1000000::real);
		PERFORM pg_restore_attribute_stats('schemaname', 'public', 'relname', hot, 'attname', 'region', 'inherited', false,
			'null_frac', 0::real, 'avg_width', 2, 'n_distinct', 1::real);
	END LOOP;
END $$;
