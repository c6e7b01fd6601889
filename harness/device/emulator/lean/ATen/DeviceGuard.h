// Operators' headers include this and use nothing of it.
#pragma once
