ALTER TABLE "rides" DROP CONSTRAINT "rides_no_show_only_while_arrived";--> statement-breakpoint
ALTER TABLE "rides" DROP CONSTRAINT "rides_exclusions";--> statement-breakpoint
ALTER TABLE "regions" ADD COLUMN "canary_version" integer;--> statement-breakpoint
ALTER TABLE "regions" ADD COLUMN "canary_share" real;--> statement-breakpoint
ALTER TABLE "regions" ADD CONSTRAINT "regions_canary" CHECK (("regions"."canary_version" is null) = ("regions"."canary_share" is null) and ("regions"."canary_share" is null or ("regions"."canary_share" > 0 and "regions"."canary_share" <= 1)));