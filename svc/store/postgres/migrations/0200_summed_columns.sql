-- expand
-- Days by column that are added up as well: a row for all spans that are alike in the fields it keeps. Segments of
-- sums bear -2, -3 and -4 as their hour, one for each selection of fields; which a day has is a bit each here, null
-- where it was not looked at yet. Days of a release before are added up in the background, the newest first.
alter table span_column_day add column summed smallint;
