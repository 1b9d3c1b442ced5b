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
