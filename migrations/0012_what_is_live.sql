-- How much of a table is live depends on the hour. Statistics of a quiet one say that nothing is, and in the rush after it each
-- index of what is live was taken for one of a single row: a set of confirms walked along all pending offers, again and again.
-- So of the columns that say whether a row is live none are gathered, and the planner expects a tenth of the rows, at any hour
-- (before version 18, what it expects by itself).
ALTER TABLE "rides" ALTER COLUMN "queue_at" SET STATISTICS 0, ALTER COLUMN "no_show_at" SET STATISTICS 0,
	ALTER COLUMN "ended_at" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "offers" ALTER COLUMN "due_at" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "assignments" ALTER COLUMN "ended_at" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "resource_leases" ALTER COLUMN "due_at" SET STATISTICS 0;
--> statement-breakpoint
ALTER TABLE "work_items" ALTER COLUMN "ready_at" SET STATISTICS 0;
--> statement-breakpoint
DO $$
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN RETURN; END IF;
	PERFORM pg_clear_attribute_stats('public', k.of, k.key, false), pg_restore_attribute_stats('schemaname', 'public', 'relname', k.of,
		'attname', k.key, 'inherited', false, 'null_frac', k.null_frac::real, 'avg_width', 8, 'n_distinct', -0.1::real)
	FROM (VALUES
		('rides', 'queue_at', 0.9),
		('rides', 'no_show_at', 0.9),
		('rides', 'ended_at', 0.1),
		('offers', 'due_at', 0.9),
		('assignments', 'ended_at', 0.1),
		('resource_leases', 'due_at', 0.9),
		('work_items', 'ready_at', 0.9)) k(of, key, null_frac);
END $$;
