CREATE TABLE "pickup_progress" (
	"region" smallint NOT NULL,
	"ride_id" uuid NOT NULL,
	"offer_id" uuid NOT NULL,
	"nearest_m" real,
	"nearer_at" timestamp with time zone NOT NULL,
	CONSTRAINT "pickup_progress_region_ride_id_pk" PRIMARY KEY("region","ride_id")
);
--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "held_until" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "stalled_since" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "pickup_progress" SET UNLOGGED;
