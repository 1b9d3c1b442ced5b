CREATE TABLE "outbox_cursors" (
	"region" smallint PRIMARY KEY NOT NULL,
	"tx" "xid8" NOT NULL,
	"ride_id" uuid NOT NULL,
	"seq" integer NOT NULL,
	"fence" bigint NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "webhooks" (
	"id" text PRIMARY KEY NOT NULL,
	"region" smallint,
	"url" text NOT NULL,
	"secret" text NOT NULL,
	"types" text[],
	"created_tx" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "webhooks_id_form" CHECK ("webhooks"."id" ~ '^[A-Za-z0-9_-]{1,64}$')
);
--> statement-breakpoint
ALTER TABLE "ride_events" ADD COLUMN "tx" "xid8" DEFAULT pg_current_xact_id() NOT NULL;--> statement-breakpoint
ALTER TABLE "webhooks" ADD CONSTRAINT "webhooks_region_regions_number_fk" FOREIGN KEY ("region") REFERENCES "public"."regions"("number") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "ride_events_in_order" ON "ride_events" USING btree ("region","tx","ride_id","seq");