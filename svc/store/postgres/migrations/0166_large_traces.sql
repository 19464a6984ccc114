-- expand
-- Traces of many spans are rolled up by the database: these functions say what `svc.domain.traces.rollup` and
-- `svc.domain.traces.tool_calls` say of the spans of a trace, by number instead of by name. Spans are numbered from one in
-- order of start; 0 is none. All are linear in the number of spans, whatever the links between them.

-- Whether the database rolls the trace up. Once large, always large.
alter table trace add column large boolean not null default false;

-- An order, depth first, with parents before children: of siblings the last comes first. A circle is cut at one of its
-- spans. No span may be its own parent.
create function trace_preorder(inout parents integer[], out visits integer[]) language plpgsql immutable as $$
declare
    n          integer := coalesce(cardinality(parents), 0);
    walks      integer[] := array_fill(0, array[n]);
    children   integer[] := array_fill(0, array[n]);
    siblings   integer[] := array_fill(0, array[n]);
    roots      integer[] := '{}';
    cuts       integer[] := '{}';
    visit      integer := 0;
    i          integer;
    j          integer;
begin
    visits := array_fill(0, array[n]);
    for i in 1..n loop
        if parents[i] = 0 then
            roots := array_append(roots, i);
        end if;
    end loop;
    for i in 1..n loop
        -- Up to where an earlier walk was; where this one was lies on a circle.
        j := i;
        while j > 0 and walks[j] = 0 loop
            walks[j] := i;
            j := parents[j];
        end loop;
        if j > 0 and walks[j] = i then
            parents[j] := 0;
            cuts := array_append(cuts, j);
        end if;
    end loop;
    for i in 1..n loop
        j := parents[i];
        if j > 0 then
            siblings[i] := children[j];
            children[j] := i;
        end if;
    end loop;
    foreach i in array roots || cuts loop
        j := i;
        while j > 0 loop
            visit := visit + 1;
            visits[visit] := j;
            if children[j] > 0 then
                j := children[j];
            else
                while j > 0 and siblings[j] = 0 loop
                    j := parents[j];
                end loop;
                if j > 0 then
                    j := siblings[j];
                end if;
            end if;
        end loop;
    end loop;
end $$;

-- What a span says of its price when its usage counts (`SpanRow.priced_by`).
create function span_priced_by(cost_source text, total_cost numeric, price_book text)
returns text language sql immutable as $$
    select coalesce(cost_source, case
        when total_cost is not null then case when price_book is null then 'provided' else 'inferred' end
        when price_book is not null then 'unpriced' end)
$$;

-- The spans whose `usage_repeats` is to change, and to what (`svc.domain.traces.rollup._repeats`).
create function trace_repeat_changes(project bigint, trace bytea, since timestamptz, until timestamptz)
returns table (span_id bytea, started_at timestamptz, repeats text)
language plpgsql stable set enable_nestloop = off set work_mem = '64MB' as $$
#variable_conflict use_column
declare
    names      constant text[] := array['descendant', 'response'];
    ids        bytea[];
    starts     timestamptz[];
    ends       timestamptz[];
    parents    integer[];
    -- 1 calls of a model that answer, 2 other calls of models, 3 steps, 0 others.
    kinds      integer[];
    reports    boolean[];
    costs      boolean[];
    inputs     numeric[];
    outputs    numeric[];
    -- The number of a response that several spans report, else 0.
    responses  integer[];
    befores    integer[];
    marks      integer[];
    n          integer;
    telling    bigint;
    shared     integer;
    visits     integer[];
    sizes      integer[];
    nexts      integer[];
    answers    boolean[];
    run_ends   timestamptz[];
    run_starts timestamptz[];
    usage_under  boolean[];
    cost_under   boolean[];
    call_under   boolean[];
    input_under  numeric[];
    output_under numeric[];
    again      boolean;
    input      numeric;
    output     numeric;
    i          integer;
    j          integer;
begin
    with member as materialized (
        select row_number() over (order by s.started_at, s.span_id)::integer as i, s.span_id, s.parent_span_id,
            s.started_at, s.ended_at,
            case when s.kind = 'llm' then 1 when s.kind in ('reasoning', 'embedding', 'reranker') then 2
                when s.kind = 'step' then 3 else 0 end as kind,
            num_nonnulls(s.input_tokens, s.output_tokens, s.cache_read_tokens, s.cache_write_tokens,
                s.reasoning_tokens) > 0 as reports,
            s.total_cost is not null as costs,
            coalesce(s.input_tokens, 0)::numeric + coalesce(s.cache_read_tokens, 0)
                + coalesce(s.cache_write_tokens, 0) as input,
            coalesce(s.output_tokens, 0)::numeric + coalesce(s.reasoning_tokens, 0) as output,
            s.response_id,
            case s.usage_repeats when 'descendant' then 1 when 'response' then 2 else 0 end as before
        from span s
        where s.project_id = project and s.trace_id = trace and s.started_at between since and until
            and s.usage_repeats is distinct from 'twin'
    ), response as (
        select r.response_id, row_number() over ()::integer as number from member r
        where r.reports and r.response_id is not null group by r.response_id having count(*) > 1
    )
    select array_agg(m.span_id order by m.i), array_agg(m.started_at order by m.i),
        array_agg(coalesce(m.ended_at, 'infinity') order by m.i),
        array_agg(case when p.i is null or p.i = m.i then 0 else p.i end order by m.i),
        array_agg(m.kind order by m.i), array_agg(m.reports order by m.i), array_agg(m.costs order by m.i),
        array_agg(m.input order by m.i), array_agg(m.output order by m.i),
        array_agg(case when m.reports then coalesce(r.number, 0) else 0 end order by m.i),
        array_agg(m.before order by m.i),
        count(*), count(*) filter (where m.reports or m.costs or m.kind = 1), coalesce(max(r.number), 0)
    into ids, starts, ends, parents, kinds, reports, costs, inputs, outputs, responses, befores, n, telling, shared
    from member m left join member p on p.span_id = m.parent_span_id
        left join response r on r.response_id = m.response_id;
    if n = 0 then
        return;
    end if;
    marks := array_fill(0, array[n]);
    if telling > 1 then
        select p.parents, p.visits into parents, visits from trace_preorder(parents) p;
        answers := array_fill(false, array[n]);
        if shared > 0 then
            -- From the last visit back: a span above one of its response has the next one of it within its own part.
            sizes := array_fill(1, array[n]);
            nexts := array_fill(0, array[shared]);
            for place in reverse n..1 loop
                i := visits[place];
                if responses[i] > 0 then
                    answers[i] := nexts[responses[i]] between place + 1 and place + sizes[i] - 1;
                    nexts[responses[i]] := place;
                end if;
                if parents[i] > 0 then
                    sizes[parents[i]] := sizes[parents[i]] + sizes[i];
                end if;
            end loop;
            -- Of those beside each other the one that starts while an earlier one runs is that one.
            run_ends := array_fill(null::timestamptz, array[shared]);
            run_starts := run_ends;
            for i in 1..n loop
                j := responses[i];
                if j > 0 and not answers[i] then
                    if starts[i] < run_ends[j] or starts[i] = run_starts[j] then
                        marks[i] := 2;
                    else
                        run_starts[j] := starts[i];
                        run_ends[j] := ends[i];
                    end if;
                end if;
            end loop;
        end if;
        usage_under := array_fill(false, array[n]);
        cost_under := usage_under;
        call_under := usage_under;
        input_under := array_fill(0::numeric, array[n]);
        output_under := input_under;
        for place in reverse n..1 loop
            i := visits[place];
            input := input_under[i];
            output := output_under[i];
            if (reports[i] or costs[i]) and marks[i] = 0 then
                if not reports[i] then
                    again := cost_under[i];
                elsif kinds[i] in (1, 2) then
                    again := answers[i] or (usage_under[i] and inputs[i] = input and outputs[i] = output);
                else
                    again := usage_under[i];
                end if;
                if again then
                    marks[i] := 1;
                else
                    input := input + inputs[i];
                    output := output + outputs[i];
                end if;
            elsif kinds[i] = 1 and call_under[i] and not reports[i] and not costs[i] then
                marks[i] := 1;
            end if;
            j := parents[i];
            if j > 0 then
                if reports[i] or usage_under[i] then
                    usage_under[j] := true;
                end if;
                if costs[i] or cost_under[i] then
                    cost_under[j] := true;
                end if;
                if (kinds[i] = 1 and (reports[i] or call_under[i])) or (kinds[i] = 3 and call_under[i]) then
                    call_under[j] := true;
                end if;
                if input > 0 then
                    input_under[j] := input_under[j] + input;
                end if;
                if output > 0 then
                    output_under[j] := output_under[j] + output;
                end if;
            end if;
        end loop;
    end if;
    return query
        select c.span_id, c.started_at, names[nullif(c.mark, 0)]
        from unnest(ids, starts, marks, befores) as c (span_id, started_at, mark, before)
        where c.mark <> c.before;
end $$;

-- The tool calls that another span of the trace reports too (`svc.domain.traces.tool_calls.dedupe_tool_calls`).
create function trace_repeated_calls(project bigint, trace bytea, since timestamptz, until timestamptz)
returns table (span_id bytea, index integer, started_at timestamptz)
language plpgsql stable set enable_nestloop = off set work_mem = '64MB' as $$
#variable_conflict use_column
declare
    -- Of spans. Kinds: 1 tools, 2 steps, 0 others.
    ids        bytea[];
    starts     timestamptz[];
    ends       timestamptz[];
    parents    integer[];
    kinds      integer[];
    twins      boolean[];
    firsts     integer[];
    n          integer;
    -- Of calls, in order of their spans. Names, ids and pairs of both are numbered; 0 is no id.
    spans      integer[];
    indexes    integer[];
    names      integer[];
    call_ids   integer[];
    pairs      integer[];
    labels     integer[];
    failures   boolean[];
    repeated   boolean[];
    size       integer;
    tools      bigint;
    tool_names bigint;
    most       integer;
    label_size bigint;
    -- Of groups: the calls that are one, the one of them that counts, and the first one met.
    groups     integer := 0;
    of_call    integer[];
    bests      integer[];
    heads      integer[];
    group_ids  integer[];
    group_pairs integer[];
    of_pair    integer[];
    of_span    integer[];
    visits     integer[];
    outers     integer[];
    -- A hash table of the labels in each group.
    slots      bigint[];
    slot_count integer;
    slot       integer;
    key        bigint;
    known      boolean[];
    matched    boolean[];
    gone       boolean[];
    run_ends   timestamptz[];
    run_starts timestamptz[];
    free       integer[];
    free_ids   integer[];
    g          integer;
    i          integer;
    j          integer;
    c          integer;
begin
    with member as materialized (
        select row_number() over (order by s.started_at, s.span_id)::integer as i, s.span_id, s.parent_span_id,
            s.started_at, s.ended_at, s.name,
            case when s.kind in ('tool', 'mcp') then 1 when s.kind = 'step' then 2 else 0 end as kind,
            s.usage_repeats is not distinct from 'twin' as twin
        from span s
        where s.project_id = project and s.trace_id = trace and s.started_at between since and until
    ), call as materialized (
        select row_number() over (order by m.i, t.index)::integer as c, m.i, t.index,
            dense_rank() over (order by t.name collate "C")::integer as name,
            case when t.call_id is null then 0
                else dense_rank() over (order by t.call_id collate "C")::integer end as call_id,
            case when t.call_id is null then 0
                else dense_rank() over (order by t.name collate "C", t.call_id collate "C")::integer end as pair,
            case when m.kind = 1 then dense_rank() over (order by m.kind, m.name collate "C")::integer
                else 0 end as label,
            t.status = 'error' as failure, m.kind = 1 as tool
        from tool_call t join member m on m.span_id = t.span_id
        where t.project_id = project and t.trace_id = trace and t.started_at between since and until
    ), first as (
        select c.i, min(c.c) as c from call c where c.tool group by c.i
    ), called as (
        select array_agg(c.i order by c.c) as spans, array_agg(c.index order by c.c) as indexes,
            array_agg(c.name order by c.c) as names, array_agg(c.call_id order by c.c) as call_ids,
            array_agg(c.pair order by c.c) as pairs, array_agg(c.label order by c.c) as labels,
            array_agg(c.failure order by c.c) as failures, count(*) as size,
            count(*) filter (where f.c is not null) as tools,
            count(distinct c.name) filter (where f.c is not null) as tool_names,
            greatest(max(c.name), max(c.call_id), max(c.pair), max(c.label)) as most
        from call c left join first f on f.c = c.c
    ), linked as (
        select array_agg(m.span_id order by m.i) as ids, array_agg(m.started_at order by m.i) as starts,
            array_agg(coalesce(m.ended_at, 'infinity') order by m.i) as ends,
            array_agg(case when p.i is null or p.i = m.i then 0 else p.i end order by m.i) as parents,
            array_agg(m.kind order by m.i) as kinds, array_agg(m.twin order by m.i) as twins,
            array_agg(coalesce(f.c, 0) order by m.i) as firsts, count(*) as n, bool_or(m.twin) as twin
        from member m left join member p on p.span_id = m.parent_span_id left join first f on f.i = m.i
    )
    select l.ids, l.starts, l.ends, l.parents, l.kinds, l.twins, l.firsts, l.n, d.spans, d.indexes, d.names,
        d.call_ids, d.pairs, d.labels, d.failures, case when d.size > 1 or l.twin then d.size else 0 end,
        d.tools, d.tool_names, d.most
    into ids, starts, ends, parents, kinds, twins, firsts, n, spans, indexes, names,
        call_ids, pairs, labels, failures, size, tools, tool_names, most
    from linked l cross join called d;
    if size = 0 then
        return;
    end if;
    repeated := array_fill(false, array[size]);
    of_call := array_fill(0, array[size]);
    bests := of_call;
    heads := of_call;
    group_ids := of_call;
    group_pairs := of_call;
    if tool_names = tools then
        for c in 1..size loop
            if firsts[spans[c]] = c then
                groups := groups + 1;
                bests[groups] := c;
                group_ids[groups] := call_ids[c];
            end if;
        end loop;
    else
        select p.parents, p.visits into parents, visits from trace_preorder(parents) p;
        outers := array_fill(0, array[n]);
        of_span := outers;
        of_pair := array_fill(0, array[most + 1]);
        slot_count := 2 * size + 1;
        slots := array_fill(0::bigint, array[slot_count]);
        label_size := most + 1;
        for place in 1..n loop
            i := visits[place];
            j := parents[i];
            if j > 0 then
                if kinds[j] = 1 then
                    outers[i] := j;
                elsif kinds[j] = 2 then
                    outers[i] := outers[j];
                end if;
            end if;
            c := firsts[i];
            if c > 0 then
                g := 0;
                if outers[i] > 0 then
                    g := of_span[outers[i]];
                end if;
                if g > 0 then
                    if names[bests[g]] <> names[c] then
                        g := 0;
                    elsif group_ids[g] > 0 and call_ids[c] > 0 then
                        if group_ids[g] <> call_ids[c] then
                            g := 0;
                        end if;
                    else
                        key := g * label_size + labels[c];
                        slot := abs(hashint8(key)::bigint) % slot_count + 1;
                        while slots[slot] <> 0 and slots[slot] <> key loop
                            slot := slot % slot_count + 1;
                        end loop;
                        if slots[slot] = key then
                            g := 0;
                        end if;
                    end if;
                end if;
                if g = 0 and pairs[c] > 0 then
                    g := of_pair[pairs[c]];
                    if g > 0 then
                        j := spans[heads[g]];
                        if not (starts[greatest(i, j)] < ends[least(i, j)] or starts[i] = starts[j]) then
                            g := 0;
                        end if;
                    end if;
                end if;
                if g = 0 then
                    groups := groups + 1;
                    g := groups;
                    heads[g] := c;
                    bests[g] := c;
                    group_ids[g] := call_ids[c];
                    group_pairs[g] := pairs[c];
                else
                    if group_ids[g] = 0 then
                        group_ids[g] := call_ids[c];
                        group_pairs[g] := pairs[c];
                    end if;
                    -- The failed one counts, else the one with an id, else the first one met.
                    j := bests[g];
                    if (failures[c] and not failures[j])
                        or (failures[c] = failures[j] and call_ids[c] > 0 and call_ids[j] = 0) then
                        bests[g] := c;
                    end if;
                end if;
                of_call[c] := g;
                of_span[i] := g;
                if group_pairs[g] > 0 then
                    of_pair[group_pairs[g]] := g;
                end if;
                key := g * label_size + labels[c];
                slot := abs(hashint8(key)::bigint) % slot_count + 1;
                while slots[slot] <> 0 and slots[slot] <> key loop
                    slot := slot % slot_count + 1;
                end loop;
                slots[slot] := key;
            end if;
        end loop;
        for c in 1..size loop
            j := firsts[spans[c]];
            if j > 0 and bests[of_call[j]] <> j then
                repeated[c] := true;
            end if;
        end loop;
    end if;
    -- A span that another trace reports as well reports no call inside an answer.
    known := array_fill(false, array[most + 1]);
    for g in 1..groups loop
        if not twins[spans[bests[g]]] and group_ids[g] > 0 then
            known[group_ids[g]] := true;
        end if;
    end loop;
    -- Calls inside answers: those with the id of a tool's span, and those of one id in answers that overlap.
    gone := array_fill(false, array[size]);
    matched := array_fill(false, array[most + 1]);
    run_ends := array_fill(null::timestamptz, array[most + 1]);
    run_starts := run_ends;
    for c in 1..size loop
        i := spans[c];
        if twins[i] then
            repeated[c] := true;
        end if;
        j := call_ids[c];
        if kinds[i] <> 1 and j > 0 then
            if known[j] then
                matched[j] := true;
                gone[c] := true;
            elsif starts[i] < run_ends[j] or starts[i] = run_starts[j] then
                gone[c] := true;
            else
                run_starts[j] := starts[i];
                run_ends[j] := ends[i];
            end if;
        end if;
    end loop;
    -- Each name keeps the spans that no id has matched yet: those without an id, and those with one.
    free := array_fill(0, array[most + 1]);
    free_ids := free;
    for g in 1..groups loop
        j := names[bests[g]];
        if twins[spans[bests[g]]] then
            continue;
        elsif group_ids[g] = 0 then
            free[j] := free[j] + 1;
        elsif not matched[group_ids[g]] then
            free_ids[j] := free_ids[j] + 1;
        end if;
    end loop;
    for c in 1..size loop
        j := names[c];
        if kinds[spans[c]] = 1 or gone[c] then
            continue;
        elsif free[j] > 0 then
            free[j] := free[j] - 1;
            gone[c] := true;
        elsif call_ids[c] = 0 and free_ids[j] > 0 then
            free_ids[j] := free_ids[j] - 1;
            gone[c] := true;
        end if;
    end loop;
    return query
        select ids[x.span], x.index, starts[x.span]
        from unnest(spans, indexes, repeated, gone) as x (span, index, repeated, gone)
        where x.repeated or x.gone;
end $$;
