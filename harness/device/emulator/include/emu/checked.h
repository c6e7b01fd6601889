// Wraps an exported function: a launch that was refused must not end as a silent success.
#pragma once
#include <torch/csrc/Exceptions.h>

#include <utility>

#include "runtime.h"

namespace emu {
template <class R, class... A>
auto checked(R (*function)(A...)) {
    auto call = [function](A... arguments) -> R {
        if constexpr (std::is_void_v<R>) {
            function(std::forward<A>(arguments)...);
            raise_unseen_error();
        } else {
            R result = function(std::forward<A>(arguments)...);
            raise_unseen_error();
            return result;
        }
    };
    return torch::wrap_pybind_function(call);
}
}  // namespace emu
