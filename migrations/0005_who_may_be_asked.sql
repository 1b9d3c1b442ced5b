CREATE TABLE "rider_driver_blocks" (
	"region" smallint NOT NULL,
	"rider_id" text NOT NULL,
	"driver_id" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"created_by" text NOT NULL,
	CONSTRAINT "rider_driver_blocks_region_rider_id_driver_id_pk" PRIMARY KEY("region","rider_id","driver_id")
);
--> statement-breakpoint
ALTER TABLE "driver_state" ADD COLUMN "seats" smallint DEFAULT 4 NOT NULL;--> statement-breakpoint
ALTER TABLE "driver_state" ADD COLUMN "attributes" text[] DEFAULT '{}'::text[] NOT NULL;--> statement-breakpoint
ALTER TABLE "driver_state" ADD COLUMN "max_pickup_m" real;--> statement-breakpoint
ALTER TABLE "driver_state" ADD COLUMN "shift_ends_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "seats" smallint DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "attributes" text[] DEFAULT '{}'::text[] NOT NULL;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "accepts_lower_class" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "excluded_as" text[] DEFAULT '{}'::text[] NOT NULL;--> statement-breakpoint
ALTER TABLE "rides" ADD COLUMN "excluded_at" timestamp with time zone[] DEFAULT '{}'::timestamptz[] NOT NULL;--> statement-breakpoint
UPDATE "rides" SET "excluded_as" = array_fill('declined'::text, array[cardinality("excluded_driver_ids")]), "excluded_at" = array_fill("updated_at", array[cardinality("excluded_driver_ids")]) WHERE cardinality("excluded_driver_ids") > 0;--> statement-breakpoint
ALTER TABLE "rides" ADD CONSTRAINT "rides_exclusions" CHECK (cardinality("rides"."excluded_driver_ids") = cardinality("rides"."excluded_as") and cardinality("rides"."excluded_as") = cardinality("rides"."excluded_at"));