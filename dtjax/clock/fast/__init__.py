"""Fast paths beside the general kernel, for runs whose trace is not kept.

`stream`: policies for which every k-th arrival is an update; `machine` takes one arrival, `forms`
say who waits and who is stopped, `workers` is the state. `rounds`: BSP and k-BSP.
"""
