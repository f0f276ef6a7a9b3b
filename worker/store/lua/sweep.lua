-- Find what was begun or published and has given no sign of life in time, and what is due to be tried again; mark the
-- lanes of both as published again. Let out lanes of the backlog where the window has room. A call found lost, or due, can be
-- claimed anew.
--
-- KEYS: leases published outbox_due
-- USES: sweep_run sweep_due sweep_judge window names
-- Request: most (how many at most), published_ms (how long a published task may lie before it counts as lost), window (see
--          window.lua)
-- Answer: status (of the run; none where there is no such run), parent (the call of another run that it is to
--         answer), lanes (to publish again), suspects (those of them that were lost), let_out (lanes of the backlog), lost
--         (how many tasks and calls), is_all (whether that is all of them), forgotten (how many calls were sent and
--         forgotten and not done), next_ms (when to look again; 0 where nothing will be due), awaited (queues from which a
--         probe is), pending_webhooks (held calls for which the web hook is to be called), waiting_for_silent ({member, process}
--         of what is held by a process that lives and reports nothing)

local is_all = #silent < request.most and #undecided < request.most and (#unbegun < 2 * request.most or waiting > 0)
local let_out = refill(request.window, due)
local next_look = look_again(leases, published, outbox_due)
return answer(next_look, {
    let_out = let_out, is_all = is_all, awaited = names(awaited), pending_webhooks = to_call, suspects = suspects,
    waiting_for_silent = waiting_for_silent,
})
