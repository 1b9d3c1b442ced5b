CREATE TABLE "assignments" (
	"region" smallint NOT NULL,
	"offer_id" uuid NOT NULL,
	"ride_id" uuid NOT NULL,
	"driver_id" text NOT NULL,
	"fence" bigint NOT NULL,
	"assigned_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone,
	"ended_as" text,
	CONSTRAINT "assignments_region_offer_id_pk" PRIMARY KEY("region","offer_id"),
	CONSTRAINT "assignments_end" CHECK (("assignments"."ended_as" is null) = ("assignments"."ended_at" is null) and ("assignments"."ended_as" is null or "assignments"."ended_as" in ('completed', 'cancelled', 'driver_cancelled')) and ("assignments"."ended_at" is null or "assignments"."ended_at" >= "assignments"."assigned_at"))
);
--> statement-breakpoint
CREATE TABLE "driver_presence" (
	"region" smallint NOT NULL,
	"driver_id" text NOT NULL,
	"seen_at" timestamp with time zone NOT NULL,
	"position_at" timestamp with time zone,
	"lat" double precision,
	"lng" double precision,
	"cell" bigint,
	CONSTRAINT "driver_presence_region_driver_id_pk" PRIMARY KEY("region","driver_id"),
	CONSTRAINT "driver_presence_position" CHECK (("driver_presence"."position_at" is null) = ("driver_presence"."lat" is null) and ("driver_presence"."lat" is null) = ("driver_presence"."lng" is null) and ("driver_presence"."lat" is null) = ("driver_presence"."cell" is null))
);
--> statement-breakpoint
CREATE TABLE "driver_state" (
	"region" smallint NOT NULL,
	"driver_id" text NOT NULL,
	"status" text NOT NULL,
	"vehicle_class" text NOT NULL,
	"leased_to_ride_id" uuid,
	"offer_id" uuid,
	"lease_token" text,
	"lease_granted_at" timestamp with time zone,
	"lease_received_at" timestamp with time zone,
	"lease_expires_at" timestamp with time zone,
	"fence" bigint DEFAULT 0 NOT NULL,
	"version" bigint DEFAULT 1 NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "driver_state_region_driver_id_pk" PRIMARY KEY("region","driver_id"),
	CONSTRAINT "driver_state_status" CHECK ("driver_state"."status" in ('offline', 'available', 'leased', 'assigned')),
	CONSTRAINT "driver_state_held" CHECK (("driver_state"."status" in ('leased', 'assigned')) = ("driver_state"."leased_to_ride_id" is not null) and ("driver_state"."leased_to_ride_id" is null) = ("driver_state"."offer_id" is null)),
	CONSTRAINT "driver_state_term" CHECK (("driver_state"."status" = 'leased') = ("driver_state"."lease_token" is not null) and ("driver_state"."lease_token" is null) = ("driver_state"."lease_expires_at" is null) and ("driver_state"."lease_token" is null) = ("driver_state"."lease_granted_at" is null) and ("driver_state"."lease_received_at" is null or "driver_state"."lease_token" is not null)),
	CONSTRAINT "driver_state_term_ends_after_grant" CHECK ("driver_state"."lease_expires_at" > "driver_state"."lease_granted_at")
);
--> statement-breakpoint
CREATE TABLE "drivers" (
	"id" text PRIMARY KEY NOT NULL,
	"region" smallint NOT NULL,
	"vehicle_class" text NOT NULL,
	"version" integer DEFAULT 1 NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "drivers_id_form" CHECK ("drivers"."id" ~ '^[A-Za-z0-9_-]{1,64}$')
);
--> statement-breakpoint
CREATE TABLE "idempotency_keys" (
	"region" smallint NOT NULL,
	"subject" text NOT NULL,
	"route" text NOT NULL,
	"key" text NOT NULL,
	"request_hash" "bytea" NOT NULL,
	"result_id" uuid NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "idempotency_keys_region_subject_route_key_pk" PRIMARY KEY("region","subject","route","key")
);
--> statement-breakpoint
CREATE TABLE "offers" (
	"region" smallint NOT NULL,
	"id" uuid NOT NULL,
	"ride_id" uuid NOT NULL,
	"driver_id" text NOT NULL,
	"fence" bigint NOT NULL,
	"status" text NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"proof" "bytea",
	"granted_at" timestamp with time zone NOT NULL,
	"received_at" timestamp with time zone,
	"expires_at" timestamp with time zone NOT NULL,
	"lifetime_ends_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone,
	"end_reason" text,
	"due_at" timestamp with time zone,
	"decision_ttl_ms" integer NOT NULL,
	"pickup_eta_s" real NOT NULL,
	"policy_version" integer NOT NULL,
	"version" smallint DEFAULT 1 NOT NULL,
	CONSTRAINT "offers_region_id_pk" PRIMARY KEY("region","id"),
	CONSTRAINT "offers_term" UNIQUE("region","id","driver_id","fence"),
	CONSTRAINT "offers_status" CHECK ("offers"."status" in ('pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable')),
	CONSTRAINT "offers_ended" CHECK (("offers"."status" = 'pending') = ("offers"."ended_at" is null) and ("offers"."status" = 'pending') = ("offers"."due_at" is not null)),
	CONSTRAINT "offers_term_times" CHECK ("offers"."expires_at" > "offers"."granted_at" and "offers"."expires_at" <= "offers"."lifetime_ends_at"),
	CONSTRAINT "offers_ended_after_grant" CHECK ("offers"."ended_at" >= "offers"."granted_at" and "offers"."received_at" >= "offers"."granted_at"),
	CONSTRAINT "offers_own_token" CHECK ("offers"."proof" is null or "offers"."proof" = "offers"."token_hash"),
	CONSTRAINT "offers_accepted_in_time" CHECK ("offers"."status" <> 'accepted' or ("offers"."proof" is not null and "offers"."received_at" is not null and "offers"."ended_at" < "offers"."expires_at")),
	CONSTRAINT "offers_lapsed" CHECK (("offers"."status" <> 'expired' or ("offers"."received_at" is not null and "offers"."ended_at" >= "offers"."expires_at")) and ("offers"."status" <> 'undeliverable' or ("offers"."received_at" is null and "offers"."ended_at" >= "offers"."expires_at")))
);
--> statement-breakpoint
CREATE TABLE "policies" (
	"region" smallint NOT NULL,
	"version" integer NOT NULL,
	"document" jsonb NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"created_by" text NOT NULL,
	CONSTRAINT "policies_region_version_pk" PRIMARY KEY("region","version")
);
--> statement-breakpoint
CREATE TABLE "presence_epochs" (
	"region" smallint PRIMARY KEY NOT NULL,
	"since" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "regions" (
	"number" smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "regions_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 4095 START WITH 1 CACHE 1),
	"id" text NOT NULL,
	"name" text NOT NULL,
	"center_lat" double precision NOT NULL,
	"center_lng" double precision NOT NULL,
	"radius_m" double precision NOT NULL,
	"policy_version" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "regions_id_unique" UNIQUE("id"),
	CONSTRAINT "regions_id_form" CHECK ("regions"."id" ~ '^[A-Za-z0-9_-]{1,64}$')
);
--> statement-breakpoint
CREATE TABLE "ride_events" (
	"region" smallint NOT NULL,
	"ride_id" uuid NOT NULL,
	"seq" integer NOT NULL,
	"type" text NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"driver_id" text,
	"offer_id" uuid,
	"fence" bigint,
	"reason" text,
	CONSTRAINT "ride_events_region_ride_id_seq_pk" PRIMARY KEY("region","ride_id","seq")
);
--> statement-breakpoint
CREATE TABLE "rides" (
	"region" smallint NOT NULL,
	"id" uuid NOT NULL,
	"rider_id" text NOT NULL,
	"status" text NOT NULL,
	"vehicle_class" text NOT NULL,
	"pickup_lat" double precision NOT NULL,
	"pickup_lng" double precision NOT NULL,
	"dropoff_lat" double precision NOT NULL,
	"dropoff_lng" double precision NOT NULL,
	"policy_version" integer NOT NULL,
	"requested_at" timestamp with time zone NOT NULL,
	"patience_until" timestamp with time zone NOT NULL,
	"queue_at" timestamp with time zone,
	"empty_rounds" integer DEFAULT 0 NOT NULL,
	"live_offers" smallint DEFAULT 0 NOT NULL,
	"offers_made" smallint DEFAULT 0 NOT NULL,
	"excluded_driver_ids" text[] DEFAULT '{}'::text[] NOT NULL,
	"assigned_driver_id" text,
	"assigned_offer_id" uuid,
	"ended_at" timestamp with time zone,
	"cancel_source" text,
	"cancel_reason" text,
	"cancel_phase" text,
	"event_seq" integer NOT NULL,
	"version" integer DEFAULT 1 NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "rides_region_id_pk" PRIMARY KEY("region","id"),
	CONSTRAINT "rides_status" CHECK ("rides"."status" in ('searching', 'assigned', 'driver_arrived', 'in_progress', 'completed', 'cancelled', 'no_drivers_available')),
	CONSTRAINT "rides_ended" CHECK (("rides"."status" in ('completed', 'cancelled', 'no_drivers_available')) = ("rides"."ended_at" is not null)),
	CONSTRAINT "rides_queued_only_while_searching" CHECK ("rides"."queue_at" is null or "rides"."status" = 'searching'),
	CONSTRAINT "rides_offers_only_while_searching" CHECK ("rides"."live_offers" = 0 or "rides"."status" = 'searching'),
	CONSTRAINT "rides_searched_or_offered" CHECK ("rides"."status" <> 'searching' or "rides"."queue_at" is not null or "rides"."live_offers" > 0),
	CONSTRAINT "rides_offers_counted" CHECK ("rides"."live_offers" between 0 and "rides"."offers_made"),
	CONSTRAINT "rides_driver" CHECK (("rides"."status" not in ('assigned', 'driver_arrived', 'in_progress', 'completed') or "rides"."assigned_driver_id" is not null) and ("rides"."status" not in ('searching', 'no_drivers_available') or "rides"."assigned_driver_id" is null) and ("rides"."assigned_driver_id" is null) = ("rides"."assigned_offer_id" is null)),
	CONSTRAINT "rides_cancelled" CHECK (("rides"."status" = 'cancelled') = ("rides"."cancel_source" is not null) and ("rides"."cancel_source" is null) = ("rides"."cancel_reason" is null) and ("rides"."cancel_source" is null) = ("rides"."cancel_phase" is null) and ("rides"."cancel_source" is null or "rides"."cancel_source" in ('rider', 'driver', 'operator', 'system')))
);
--> statement-breakpoint
ALTER TABLE "assignments" ADD CONSTRAINT "assignments_term" FOREIGN KEY ("region","offer_id","driver_id","fence") REFERENCES "public"."offers"("region","id","driver_id","fence") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "drivers" ADD CONSTRAINT "drivers_region_regions_number_fk" FOREIGN KEY ("region") REFERENCES "public"."regions"("number") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "policies" ADD CONSTRAINT "policies_region_regions_number_fk" FOREIGN KEY ("region") REFERENCES "public"."regions"("number") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "assignments_live_ride" ON "assignments" USING btree ("region","ride_id") WHERE "assignments"."ended_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "assignments_live_driver" ON "assignments" USING btree ("region","driver_id") WHERE "assignments"."ended_at" is null;--> statement-breakpoint
CREATE INDEX "driver_presence_by_cell" ON "driver_presence" USING btree ("region","cell");--> statement-breakpoint
CREATE INDEX "idempotency_keys_by_age" ON "idempotency_keys" USING btree ("region","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "offers_pending_driver" ON "offers" USING btree ("region","driver_id") WHERE "offers"."due_at" is not null;--> statement-breakpoint
CREATE INDEX "offers_pending_ride" ON "offers" USING btree ("region","ride_id") WHERE "offers"."due_at" is not null;--> statement-breakpoint
CREATE INDEX "offers_due" ON "offers" USING btree ("region","due_at") WHERE "offers"."due_at" is not null;--> statement-breakpoint
CREATE INDEX "rides_queue" ON "rides" USING btree ("region","queue_at") WHERE "rides"."queue_at" is not null;--> statement-breakpoint
CREATE INDEX "rides_open" ON "rides" USING btree ("region","id") WHERE "rides"."ended_at" is null;