CREATE TABLE "work_items" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "work_items_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"queue" text COLLATE "C" NOT NULL,
	"key" text COLLATE "C" NOT NULL,
	"group_name" text COLLATE "C",
	"payload" jsonb NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"ready_at" timestamp with time zone,
	"token_hash" "bytea",
	"last_error" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"done_at" timestamp with time zone,
	"dead_at" timestamp with time zone,
	CONSTRAINT "work_items_key" UNIQUE("queue","key"),
	CONSTRAINT "work_items_state" CHECK (num_nonnulls("work_items"."ready_at", "work_items"."done_at", "work_items"."dead_at") = 1)
);
--> statement-breakpoint
CREATE INDEX "work_items_ready" ON "work_items" USING btree ("queue","ready_at") WHERE "work_items"."ready_at" is not null;--> statement-breakpoint
CREATE INDEX "work_items_group" ON "work_items" USING btree ("queue","group_name","id") WHERE "work_items"."ready_at" is not null and "work_items"."group_name" is not null;--> statement-breakpoint
CREATE INDEX "work_items_done" ON "work_items" USING btree ("done_at") WHERE "work_items"."done_at" is not null;--> statement-breakpoint
CREATE INDEX "work_items_dead" ON "work_items" USING btree ("queue","id") WHERE "work_items"."dead_at" is not null;